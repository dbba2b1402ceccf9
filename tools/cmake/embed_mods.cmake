# cmake -DROOT=dsl/mods -DOUT=file.cpp -P embed_mods.cmake: writes the library of mods into a C++ file, as the table that
# tools/attnc/show/library_mods.h declares.
file(GLOB files RELATIVE ${ROOT} ${ROOT}/*.py)
list(SORT files)
set(text "#include \"show/library_mods.h\"\n\nnamespace attnc::cli {\n\nconst LibraryMod kLibraryMods[] = {\n")
foreach(file ${files})
  file(READ ${ROOT}/${file} content)
  string(REGEX REPLACE "\\.py$" "" name ${file})
  string(APPEND text "    {\"${name}\", R\"attnc(${content})attnc\"},\n")
endforeach()
list(LENGTH files count)
string(APPEND text "};\nconst unsigned kLibraryModCount = ${count};\n\n} // namespace attnc::cli\n")
file(WRITE ${OUT} "${text}")
