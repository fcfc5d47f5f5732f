set(metrics ${CMAKE_SOURCE_DIR}/launcher/metrics)
pdjob_fuzz(process_pages SOURCES process_pages_fuzz.cc ${metrics}/merged_metrics.cc ${CMAKE_SOURCE_DIR}/launcher/dashboard/process_watch.cc LINKS pdjob_net pdjob_openai)
