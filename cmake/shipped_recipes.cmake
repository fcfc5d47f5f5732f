# Recipes are part of the program, because one binary travels to every node.

# pdjob_ship_recipes(): makes the text of each .yaml file of this folder a row of FOLDER/shipped_recipes.inc, which the folder's code includes.
function(pdjob_ship_recipes)
  file(GLOB recipes CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.yaml)
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
