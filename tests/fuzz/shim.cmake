set(ray ${CMAKE_SOURCE_DIR}/launcher/ray)
pdjob_fuzz(shim SOURCES shim_fuzz.cc ${ray}/ray_session.cc ${ray}/ray_session_due.cc ${ray}/ray_session_slots.cc ${ray}/shim_line.cc LINKS pdjob_net)
