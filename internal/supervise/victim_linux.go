package supervise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// victimScore is the least oom_score_adj of a worker. When the machine, not one
// worker, runs out of memory, the kernel's choice is by size, and 500 counts as
// half of all memory more (proc_pid_oom_score_adj(5)): any worker goes before
// the host, which keeps its own, and before what else runs on the machine.
const victimScore = 500

// offer makes a process one that the kernel ends first for want of memory, unless
// it is one already; what it starts later is, too. Raising the score needs no
// privilege. It is a service to the machine and no wall, so that where /proc
// cannot be written to, workers go without.
func offer(pid int) {
	name := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || score >= victimScore {
		return
	}
	_ = os.WriteFile(name, []byte(strconv.Itoa(victimScore)), 0)
}
