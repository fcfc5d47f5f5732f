# Read by llama.cpp's own CMake, after its project(): builds what pdjob links, and in a third of the time, because many files are one unit.

# What llama-common's programs need beside it: the command line, downloads. pdjob links none of it.
set(PROGRAMS_OWN arg console debug download hf-cache imatrix-loader llguidance preset subproc)

function(pdjob_llama_units)
  # llama.cpp has units of its own for the models.
  get_target_property(core llama SOURCE_DIR)
  get_target_property(sources llama SOURCES)
  list(FILTER sources INCLUDE REGEX "^[^/]+\\.cpp$")
  list(TRANSFORM sources PREPEND "${core}/")
  set_source_files_properties(${sources} TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)

  get_target_property(common llama-common SOURCE_DIR)
  get_target_property(sources llama-common SOURCES)
  list(TRANSFORM PROGRAMS_OWN APPEND ".cpp" OUTPUT_VARIABLE own)
  list(REMOVE_ITEM sources ${own})
  list(TRANSFORM own PREPEND "${common}/")
  set_target_properties(llama-common PROPERTIES SOURCES "${sources}" UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  # It has another meaning of a name that the others use.
  set_source_files_properties("${common}/json.cpp" TARGET_DIRECTORY llama-common PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Only downloads use it.
  get_target_property(links llama-common LINK_LIBRARIES)
  list(REMOVE_ITEM links cpp-httplib)
  set_target_properties(llama-common PROPERTIES LINK_LIBRARIES "${links}")
  # After CMake's -O3, which is for kernels: these build graphs and read templates.
  foreach(target llama llama-common)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O2>)
  endforeach()
  add_library(llama-common-programs STATIC EXCLUDE_FROM_ALL ${own})
  target_link_libraries(llama-common-programs PRIVATE llama-common cpp-httplib)
  set_property(TARGET llama-common APPEND PROPERTY INTERFACE_LINK_LIBRARIES llama-common-programs)
endfunction()

cmake_language(DEFER CALL pdjob_llama_units)
