# cmake -DROOT=dsl/mods -DHEADER=show/library_mods.h -DNAMESPACE=attnc::cli -DTYPE=LibraryMod -DOUT=file.cpp -P
# embed_files.cmake: writes mods or kernel templates into a C++ file, as the table that the header declares. Sorted by
# name, so that the table's digest does not depend on the file system.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/*.py ${ROOT}/*.cu ${ROOT}/*.cuh)
list(FILTER files EXCLUDE REGEX "^(mod/identity|pictures)/")
list(SORT files)
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\nconst ${TYPE} k${TYPE}s[] = {\n")
foreach(file ${files})
  file(READ ${ROOT}/${file} content)
  string(REGEX REPLACE "\\.py$" "" name ${file})
  string(APPEND text "    {\"${name}\", R\"attnc(${content})attnc\"},\n")
endforeach()
list(LENGTH files count)
string(APPEND text "};\nconst unsigned k${TYPE}Count = ${count};\n\n} // namespace ${NAMESPACE}\n")
file(WRITE ${OUT} "${text}")
