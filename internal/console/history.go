package console

import (
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// maxHistory is how many looks at one place are remembered.
const maxHistory = 24

// look is what was seen of a place at one look.
type look struct {
	state    control.State
	instance string
	signal   control.Timestamp
}

// histories are the last looks at every place.
type histories map[place][]look

// add notes a host's rows, and forgets the places that it does not have any
// more.
func (h histories) add(host control.Manifest, rows []row) {
	present := make(map[place]bool)
	for i := range rows {
		r := &rows[i]
		if r.id.host != host || present[r.place()] {
			continue
		}
		present[r.place()] = true
		looks := append(h[r.place()], look{r.record.State, r.record.InstanceID, r.record.LastActivityAt})
		h[r.place()] = looks[max(0, len(looks)-maxHistory):]
	}
	for p := range h {
		if p.host == host && !present[p] {
			delete(h, p)
		}
	}
}

// bars are the signs of states in a history, by how much is going on.
var bars = map[control.State]string{
	control.StateStarting: "▂", control.StateReady: "▃", control.StateResetting: "▄",
	control.StateRunning: "▇", control.StateDisposing: "▁", control.StateFailed: "✗",
}

// sparkline is a history in one line of at most width signs, the newest at the
// right: a bar for every look, and a line where a new generation began.
func sparkline(looks []look, width int) string {
	var signs []string
	for i, l := range looks {
		if i > 0 && looks[i-1].instance != l.instance {
			signs = append(signs, "│")
		}
		sign, known := bars[l.state]
		if !known {
			sign = "?"
		}
		signs = append(signs, sign)
	}
	var line string
	for _, sign := range signs[max(0, len(signs)-max(0, width)):] {
		line += sign
	}
	return line
}

// signals counts the lifecycle signals that were seen to come.
func signals(looks []look) int {
	n := 0
	for i := 1; i < len(looks); i++ {
		if looks[i].signal != looks[i-1].signal {
			n++
		}
	}
	return n
}

// entry is a line of the activity log: what this operator did, or what came of
// it.
type entry struct {
	at   time.Time
	text string
	tone tone
}

// tone is how a message is meant.
type tone int

const (
	toneInfo tone = iota
	toneGood
	toneWarn
	toneBad
)

// maxLog is how many lines the activity log keeps.
const maxLog = 200
