package main

import "strings"

// exclusions are the tests that do not run in the VM. Everything else does, new
// tests too; each row says why it is here.
// Parts of names are regular expressions.
var exclusions = []struct{ pkg, test, reason string }{
	{"internal/platform/kvmvm", "TestPrivilegedInstructionsEndInAFault/SSE_error", "QEMU's processor raises no SSE exceptions"},
	{"internal/engine", "TestADamagedTemplateIsNeverUsed", "hashes files a hundred times: the same on every KVM, and slow in emulation"},
	{"internal/engine", "TestMemoryIsASizeOfTheMachineNotOfTheTemplate", "fills a gigabyte: slow in emulation"},
	{"internal/engine", "TestCases/C4_.*", "fill memory: slow in emulation, and hostile programs do it there"},
	{"internal/engine", "TestCases/C5_.*", "deep recursion: slow in emulation, and hostile programs do it there"},
	{"internal/engine", "TestCases/C1_power_of_big_integers", "computes for long: slow in emulation"},
	{"internal/engine", "TestAsyncioCases/E2_(beyond_the_limit_of_time|future_that_nobody_completes|pending_task|run_in_a_running_loop|wait_for|to_thread)",
		"import asyncio, which takes seconds in emulation; others of these cases run"},
	{"internal/engine", "TestAsyncioWorks/(calls_from_other_threads|to_thread|a_task_left_pending|wait_for_and_timeouts|queues,_locks_and_events)",
		"import asyncio, which takes seconds in emulation; others of these programs run"},
	{"internal/engine", "TestFilesWorkAsProgramsExpect", "files are in Go: the same on every KVM"},
	{"internal/engine", "TestTheHashSeedIsTheTemplates", "boots twice more: slow in emulation"},
	{"internal/engine", "TestHostileProgramsHurtThemselvesOnly/(bad_pointers_to_every_system_call|iovecs|descriptors|bytes_of_files)",
		"thousands of system calls, whose answers are in Go: the same on every KVM"},
	{"internal/engine", "TestRunsOnOneMachineQueue", "prints thirty thousand lines, each of which asks for the time: slow in emulation"},
	{"internal/engine", "TestTheInterpreterBootsEveryTime", "boots again and again; other tests boot it a dozen times"},
	{"internal/engine", "TestThreadsGiveTheRightAnswers/a_lock_guards_a_count", "many thousand turns of a lock: slow in emulation"},
	{"internal/engine", "TestHostileProgramsHurtThemselvesOnly/threads_that_spin", "fifty threads that fight for one lock: slow in emulation"},
	{"internal/engine", "TestHostileProgramsHurtThemselvesOnly/threads_without_end", "starts threads up to the limit: slow in emulation"},
	{"internal/engine", "TestHostileProgramsHurtThemselvesOnly/folder_entries", "makes files up to the limit: slow in emulation"},
	{"internal/engine", "TestHostileProgramsHurtThemselvesOnly/arithmetic_traps", "QEMU's processor raises no SSE exceptions"},
}

// skipPattern gives the value of -test.skip for a package; empty: run all.
func skipPattern(pkg string) string {
	var patterns []string
	for _, e := range exclusions {
		if e.pkg == pkg {
			patterns = append(patterns, anchored(e.test))
		}
	}
	return strings.Join(patterns, "|")
}

// anchored makes a test's name a pattern that matches nothing else.
func anchored(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}
