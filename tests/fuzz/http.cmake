pdjob_fuzz(http SOURCES http_fuzz.cc LINKS pdjob_net)
pdjob_fuzz(json_edit SOURCES json_edit_fuzz.cc LINKS pdjob_openai)
