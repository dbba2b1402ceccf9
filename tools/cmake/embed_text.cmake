# cmake -DFILE=SPEC.md -DHEADER=language.h -DNAMESPACE=attnc::cli -DNAME=kLanguage -DOUT=file.cpp -P embed_text.cmake:
# writes a text into a C++ file, as the string that the header declares.
file(READ ${FILE} text)
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\nconst char ${NAME}[] = R\"attnc(${text})attnc\";\n\n"
                  "} // namespace ${NAMESPACE}\n")
