# cmake -DROOT=templates -DOUT=file.cpp -P embed_templates.cmake: writes the kernel templates into a C++ file, as the
# table that src/plan/embedded.h declares. Sorted by name, so that the table's digest does not depend on the file
# system.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/*.cu ${ROOT}/*.cuh)
list(FILTER files EXCLUDE REGEX "^mod/identity/")
list(SORT files)
set(text "#include \"plan/embedded.h\"\n\nnamespace attnc::plan {\n\nconst EmbeddedFile kEmbeddedFiles[] = {\n")
foreach(file ${files})
  file(READ ${ROOT}/${file} content)
  string(APPEND text "    {\"${file}\", R\"attnc(${content})attnc\"},\n")
endforeach()
list(LENGTH files count)
string(APPEND text "};\nconst unsigned kEmbeddedFileCount = ${count};\n\n} // namespace attnc::plan\n")
file(WRITE ${OUT} "${text}")
