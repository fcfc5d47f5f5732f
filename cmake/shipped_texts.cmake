# Programs of other languages are part of the binary, because one file travels.

# pdjob_ship_texts(FILES...): makes the text of each file a row of FOLDER/shipped_texts.inc, which the folder's code includes.
function(pdjob_ship_texts)
  set(shipped_texts "")
  foreach(file IN LISTS ARGN)
    file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${file} text)
    string(APPEND shipped_texts "{\"${file}\", R\"shipped(${text})shipped\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${folder}/shipped_texts.inc CONTENT "@shipped_texts@" @ONLY)
endfunction()
