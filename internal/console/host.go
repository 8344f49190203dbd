package console

import (
	"errors"
	"slices"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// hostState is what is known of a host.
type hostState struct {
	manifest control.Manifest
	// asking: a question is under way. again: ask once more when it is
	// answered, however often that was wanted meanwhile.
	asking, again bool
	answered      bool
	at            time.Time // of the last answer
	rows          []*row
	history       histories
	err           error
}

func (h *hostState) failed() bool { return h.err != nil }

// gone says whether the host is known to have ended, and its sandboxes with it.
func (h *hostState) gone() bool { return errors.Is(h.err, control.ErrGone) }

// name is the host's in the log.
func (h *hostState) name() string { return "host " + view.Name(h.manifest.SourceID) }

// sortedHosts are the hosts in the order of their names.
func (m *model) sortedHosts() []*hostState {
	hosts := make([]*hostState, 0, len(m.hosts))
	for _, host := range m.hosts {
		hosts = append(hosts, host)
	}
	slices.SortFunc(hosts, func(a, b *hostState) int { return compareManifests(a.manifest, b.manifest) })
	return hosts
}

// unavailable counts the hosts that did not answer well.
func (m *model) unavailable() int {
	n := 0
	for _, host := range m.hosts {
		if host.failed() {
			n++
		}
	}
	return n
}

// waiting are the hosts that are being asked.
func (m *model) waiting() []*hostState {
	return slices.DeleteFunc(m.sortedHosts(), func(host *hostState) bool { return !host.asking })
}

// unknown counts the hosts that did not answer well and may still have
// sandboxes. One that is gone has none.
func (m *model) unknown() int {
	n := 0
	for _, host := range m.hosts {
		if host.failed() && !host.gone() {
			n++
		}
	}
	return n
}
