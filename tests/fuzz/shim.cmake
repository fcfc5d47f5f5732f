pdjob_fuzz(shim SOURCES shim_fuzz.cc LINKS pdjob_launcher_ray)
