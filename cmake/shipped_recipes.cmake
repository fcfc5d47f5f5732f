# Recipes are part of the program, because one binary travels to every node.

# pdjob_ship_recipes([FOLDER]): makes the text of each .yaml file of FOLDER, or else of this folder, a row of
# shipped_recipes.inc of this folder, which its code includes.
function(pdjob_ship_recipes)
  set(home ${CMAKE_CURRENT_SOURCE_DIR})
  if(ARGC)
    set(home ${CMAKE_SOURCE_DIR}/${ARGV0})
  endif()
  file(GLOB recipes CONFIGURE_DEPENDS ${home}/*.yaml)
  set(shipped_recipes "")
  foreach(recipe IN LISTS recipes)
    get_filename_component(name ${recipe} NAME_WE)
    file(READ ${recipe} text)
    string(APPEND shipped_recipes "{\"${name}\", R\"recipe(${text})recipe\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${recipe})
  endforeach()
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${folder}/shipped_recipes.inc CONTENT "@shipped_recipes@" @ONLY)
endfunction()
