pdjob_fuzz(agent SOURCES agent_fuzz.cc LINKS pdjob_launcher_agents)
