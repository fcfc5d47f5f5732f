# Mutants: simulations with a bug planted in one line of a production file. A mutant passes if some seed finds its bug, and if few of that
# seed's events suffice. They are built without sanitizers, because they run many seeds: `./dev mutants`.

add_custom_target(mutants)

# The changed file comes before the library that has the original.
function(pdjob_mutant name program world file old new)
  set(changed ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  add_custom_command(
    OUTPUT ${changed}
    COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/mutate.py ${CMAKE_SOURCE_DIR}/${file} ${changed} "${old}" "${new}"
    DEPENDS ${CMAKE_SOURCE_DIR}/${file} mutate.py
    VERBATIM)
  add_executable(${name} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${program}_objects> $<TARGET_OBJECTS:simulation_main> ${changed})
  target_link_libraries(${name} PRIVATE ${world})
  target_compile_options(${name} PRIVATE -O1 -Wno-unused -Wno-unused-parameter)
  add_dependencies(mutants ${name})
  add_test(NAME ${name} COMMAND ${name} ${ARGN} --find 10000)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS mutant)
endfunction()

# kv_mutant(NAME FILE OLD NEW): of KV transfers.
function(kv_mutant name file old new)
  pdjob_mutant(kv_mutant_${name} kv_simulation kv_simulation_world kvtransfer/${file} "${old}" "${new}")
endfunction()
kv_mutant(digest session/transfer_session.cc "commit_.digest != digest_arrived_" "false")
kv_mutant(given_on session/receiver.cc "const bool safe = effect.region_safe || fetch.released;" "const bool safe = true;")
kv_mutant(ends_twice session/receiver.cc "context_.emit(FetchDone{" "context_.emit(FetchReleased{fetch.id}); context_.emit(FetchDone{")
kv_mutant(no_deadline session/receiver.cc "fetch.timer.arm(fetch.session.deadline()," "fetch.timer.arm(kNever,")
kv_mutant(no_lease session/sender.cc "offer.timer.arm(offer.session.deadline()," "offer.timer.arm(kNever,")
kv_mutant(lease_of_waiting session/transfer_session.cc "state_ == State::kAwaited ? wait_deadline_ : kNever" "state_ == State::kAwaited ? now : kNever")
kv_mutant(wait_forgotten session/waits.cc "row.second.link == link.id()" "row.second.link != link.id()")
kv_mutant(tail link/link.cc "tail_in_.data() + tail_in_.size() - payload_in_left_" "tail_in_.data()")

kv_mutant(nccl_waits_for_ever nccl/nccl_link.cc "earliest = std::min(earliest, slab.deadline);" "")
kv_mutant(nccl_forgets_offer nccl/nccl_link.cc "    next_offer_ = event;" "")

# batch_mutant(NAME FILE OLD NEW): of batches.
function(batch_mutant name file old new)
  pdjob_mutant(batch_mutant_${name} batch_simulation batch_simulation_world batch/${file} "${old}" "${new}")
endfunction()
batch_mutant(part_is_not_synced store/records.cc "PDJOB_TRY_STATUS(part.file->sync());" "")
pdjob_mutant(batch_mutant_ledger_is_not_synced batch_simulation batch_simulation_world common/sqlite/database.cc "PRAGMA synchronous = FULL;" "PRAGMA synchronous = OFF;")
batch_mutant(forgets_blame store/ledger_file.cc "INSERT OR REPLACE INTO blames" "INSERT OR IGNORE INTO blames")
batch_mutant(ledger_trusts_cache store/ledger_file.cc "PRAGMA wal_checkpoint(TRUNCATE)" "PRAGMA user_version")
batch_mutant(keeps_tail store/records.cc "disk_.open(part_path(kind, number, PartState::kOpen), bytes)" "disk_.open(part_path(kind, number, PartState::kOpen), 0)")
batch_mutant(notes_twice core/ledger.cc "  cancel_others(id, turn);" "")
batch_mutant(forgets_backoff core/ledger.cc "backoff_.emplace(row.due, id);" "")

# ray_mutant(NAME FILE OLD NEW): of merged Ray clusters.
function(ray_mutant name file old new)
  pdjob_mutant(ray_mutant_${name} ray_simulation ray_simulation_world launcher/ray/${file} "${old}" "${new}")
endfunction()
ray_mutant(mistakes_answers ray_session.cc "if (!slot->leaving) {" "if (true) {")
ray_mutant(leaves_before_it_came ray_session_slots.cc "slot.leaving || waits_for(Purpose::kJoin, slot.name)" "slot.leaving")
ray_mutant(keeps_its_part ray_session_due.cc "} else if (!gathered_ && turn.now >= gather_due_) {" "} else if (false) {")
ray_mutant(reserves_a_part ray_session_due.cc "(gathered_ || !missing)" "true")
ray_mutant(forgets_late_reservation ray_session.cc "(!known || abandoned)" "abandoned")
ray_mutant(trusts_old_reservations ray_session.cc "std::ranges::find(there, slot.reservation) == there.end()" "false")
ray_mutant(trusts_old_nodes ray_session.cc "if (slot.guest && !slot.told) {" "if (false) {")
ray_mutant(forgets_lost_agent ray_session.cc "back_off(*slot, \"its agent was lost\", turn);" "slot->state = SlotState::kUp;")
ray_mutant(awaits_start_for_ever ray_session.cc "slot.due = turn.now + setting_.agent_timeout;  //" "//")
ray_mutant(awaits_agent_for_ever ray_session_due.cc "if (slot.state == SlotState::kStarting && slot.due <= turn.now) {" "if (false) {")

# batch_api_mutant(NAME FILE OLD NEW): of the lives of batches.
function(batch_api_mutant name file old new)
  pdjob_mutant(batch_api_mutant_${name} batch_api_simulation batch_api_simulation_world batch/${file} "${old}" "${new}")
endfunction()
batch_api_mutant(forgets_cancel api/batch_lifecycle.cc "  batch.cancelling_at = turn.now;" "")
batch_api_mutant(names_results_again api/batch_lifecycle.cc "one.batch.output_file_id.empty()" "true")

# mutant(NAME SCENARIO FILE OLD NEW): of whole jobs.
function(mutant name scenario file old new)
  pdjob_mutant(mutant_${name} simulation simulation_world ${file} "${old}" "${new}" --scenario ${scenario})
endfunction()
mutant(job_keeps_role cluster launcher/job/job.cc "process.role = process.next_role;" "")
mutant(supervision_stays_killed cluster launcher/job/supervision.cc "process.stands_still = process.killed = process.drain_sent" "process.stands_still = process.drain_sent")
mutant(supervision_restarts_retired cluster launcher/job/supervision.cc "      enter(process, ProcessState::kExited, turn);" "enter(process, ProcessState::kBackoff, turn, turn.now);")
mutant(membership_told_once cluster launcher/job/membership_log.cc "listener->second.applied < version_ &&" "false &&")
mutant(membership_skips cluster launcher/job/membership_log.cc "row->changed_in > version; ++row" "row->changed_in > version + 1; ++row")
mutant(membership_serves_unproved cluster launcher/job/membership_log.cc ": process.state == ProcessState::kReady ? net::Standing::kServing" ": true ? net::Standing::kServing")
mutant(probing_never_ends everyday launcher/job/probing.cc "member->in_flight -= 1;" "")
mutant(placement_on_lost_node cluster launcher/placement/placement.cc "rows_.erase(rows_.begin() + (row - rows_.data()));" "")
mutant(placement_promises_twice cluster launcher/placement/placement.cc "(terms.overcommit ? share.lack(demand) : share.shortfall(demand)).none()" "true")
mutant(placement_ignores_labels cluster launcher/placement/placement.cc "row.accepted.push_back(static_cast<char>(row.share.accepted_by(demand)));" "row.accepted.push_back(1);")
mutant(job_forgets_waiting cluster launcher/job/job.cc "const bool placed = find_place(process);" "const bool placed = false;")
mutant(node_share_keeps_promise cluster launcher/placement/node_share.cc "cores_used_ -= demand.cores;" "")
mutant(agent_ignores_silence machines launcher/agents/agent_session.cc "if (state_ == State::kServing && turn.now >= heard_ + lease_) {" "if (false) {")
mutant(agent_orphaned_for_ever machines launcher/agents/agent_session.cc "if (state_ == State::kOrphaned && turn.now >= orphan_until_) {" "if (false) {")
mutant(agent_misses_orders machines launcher/agents/agent_session.cc "if (frame.number != received_ + 1) {" "if (false) {")
mutant(agent_ends_nothing machines launcher/agents/agent_session.cc "  turn.effects.push_back(EndSession{why});" "")
mutant(roster_misses_news machines launcher/agents/agent_roster.cc "if (frame.number != agent.received + 1) {" "if (false) {")
mutant(roster_trusts_returned machines launcher/agents/agent_roster.cc "(hello.session == at->second.session || !at->second.ready)" "true")
mutant(roster_waits_for_ever machines launcher/agents/agent_roster.cc "if (turn.now >= agent->second.heard + setting_.lease) {" "if (false) {")
mutant(roster_hides_loss machines launcher/agents/agent_roster.cc "    turn.effects.push_back(NodeGone{at->first, why});" "")
mutant(merged_forgets_nodes machines launcher/clusters/merged_cluster.cc "    by_node_[joined->node.name] = &cluster;" "")
mutant(router_forgets_load everyday router/core/router.cc "table_.end(leg.worker, leg.tokens);" "")
mutant(router_ignores_limit everyday router/core/router_choice.cc "!has_room || (alone" "(alone")
mutant(router_repeats_tokens everyday router/core/router.cc "effect.resumes = stage == Stage::kDecode && request.begun;" "effect.resumes = false;")
mutant(router_blames_company everyday router/core/router_blame.cc "      excuse_company(request);" "")
mutant(router_blames_neighbours everyday router/router_member.cc "std::chrono::milliseconds(10);" "std::chrono::milliseconds(0);")
mutant(static_members_keep_old by_hand router/members/static_members.cc "if (row.entry != entry) {" "if (!row.entry) {")
mutant(static_members_leave_for_ever by_hand router/members/static_members.cc "emit(Left{row.given.address});" "row.next_poll = kNever;")
mutant(async_never_ends tenants router/async/async_requests.cc "running_ -= found->second.state == State::kRunning ? 1 : 0;" "")
mutant(async_is_not_synced tenants common/sqlite/database.cc "PRAGMA synchronous = FULL;" "PRAGMA synchronous = OFF;")
mutant(prefill_forgets_awaited everyday prefill/prefill_worker.cc "request.awaited && request.choices <= free" "false")
mutant(decode_gives_rows_on everyday decode/decode_worker.cc "if (!event.region_safe) {" "if (false) {")
mutant(cache_shows_tenants tenants worker/core/prompt_cache.cc "kept.rows == 0 || kept.prompt->tenant != prompt.tenant" "kept.rows == 0")
mutant(cache_keeps_too_much everyday worker/core/prompt_cache.cc "prompt.tokens.begin(), prompt.tokens.end() - 1).first" "prompt.tokens.begin(), prompt.tokens.end()).first")
mutant(engine_waits_for_ever everyday worker/core/engine_loop.cc "if (live.transfer == TransferState::kAwaited) {" "if (false) {")
mutant(engine_meets_itself everyday worker/core/engine_loop.cc "error = {ErrorCode::kUnavailable, \"transfer \"" "error = {ErrorCode::kInvalidArgument, \"transfer \"")

# unit_mutant(NAME TEST LIBRARY FILE OLD NEW): of code that no simulated job runs. Its unit test finds it, by random stories.
function(unit_mutant name test library file old new)
  set(mutant ${CMAKE_CURRENT_BINARY_DIR}/${name}_mutant.cc)
  add_custom_command(
    OUTPUT ${mutant}
    COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/mutate.py ${CMAKE_SOURCE_DIR}/${file} ${mutant} "${old}" "${new}"
    DEPENDS ${CMAKE_SOURCE_DIR}/${file} mutate.py
    VERBATIM)
  add_executable(mutant_${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/unit/${test} ${mutant})
  target_link_libraries(mutant_${name} PRIVATE ${library} GTest::gtest GTest::gtest_main)
  add_dependencies(mutants mutant_${name})
  add_test(NAME mutant_${name} COMMAND mutant_${name} --gtest_brief=1)
  set_tests_properties(mutant_${name} PROPERTIES TIMEOUT 600 LABELS mutant WILL_FAIL TRUE)
endfunction()
unit_mutant(external_router router/external/external_router_test.cc pdjob_router router/external/external_router.cc "version_ > version_applied_" "true")
unit_mutant(adoption_keeps_strangers launcher/job/job_adoption_test.cc pdjob_launcher_job launcher/job/job_adoption.cc "turn.emit(SendSignal{running.incarnation, Signal::kKill});" "")
unit_mutant(adoption_begins_versions_anew launcher/job/job_adoption_test.cc pdjob_launcher_job launcher/job/job.cc "(setting.launcher << 32U) + 1" "1")
unit_mutant(adoption_does_not_ask launcher/job/job_adoption_test.cc pdjob_launcher_job launcher/job/supervision.cc "turn.emit(Send{process.name, net::RegisterAsked{}});" "")
