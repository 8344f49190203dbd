package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// host is one that is asked who it is before anything else. All are so asked
// side by side: one that takes long to say who it is holds up no other.
type host struct {
	*control.Client

	mu sync.Mutex
	// stranger is why it is not asked.
	stranger error
	// answered: it did, and well.
	answered bool
}

// List asks the host who it is and for its sandboxes.
func (h *host) List(ctx context.Context) ([]control.Record, error) {
	if err := h.greet(ctx); err != nil {
		return nil, err
	}
	records, err := h.Client.List(ctx)
	h.note(err)
	return records, err
}

// Get asks the host who it is and for one sandbox.
func (h *host) Get(ctx context.Context, instanceID string) (control.Record, bool, error) {
	if err := h.greet(ctx); err != nil {
		return control.Record{}, false, err
	}
	record, there, err := h.Client.Get(ctx, instanceID)
	h.note(err)
	return record, there, err
}

func (h *host) greet(ctx context.Context) error {
	err := h.Health(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stranger = err
	return err
}

func (h *host) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered = err == nil
}

func (h *host) hasAnswered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered
}

// refusedBy says whether a failure is the host's answer to who it is.
func (h *host) refusedBy(failure *control.HostError) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var own *control.HostError
	return errors.As(h.stranger, &own) && own == failure
}

// unasked are the hosts that there are now.
func (f *Fleet) unasked() ([]*host, error) {
	if f.named != nil {
		return []*host{{Client: f.named}}, nil
	}
	manifests, err := control.Manifests(f.directory)
	if err != nil {
		return nil, err
	}
	hosts := make([]*host, 0, len(manifests))
	for _, manifest := range manifests {
		client, err := control.NewClient(manifest)
		if err != nil {
			continue // its endpoint was checked when it was read
		}
		hosts = append(hosts, &host{Client: client})
	}
	return hosts, nil
}

// together is one control of all hosts. It has one deadline for all, and who
// they are is a part of it.
func together(hosts []*host) *control.Composite {
	members := make([]control.Member, len(hosts))
	for i, h := range hosts {
		members[i] = control.Member{SourceID: h.Manifest().SourceID, Control: h}
	}
	return control.NewComposite(members, nil)
}

// failed are the hosts that an answer is without. Those that did not say who
// they are come first, as when they are asked for that first.
func failed(hosts []*host, err error) ([]*control.HostError, error) {
	var partial *control.PartialError
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &partial):
		return nil, err
	}
	var strangers, others []*control.HostError
	for _, failure := range partial.Hosts {
		if isStranger(hosts, failure) {
			strangers = append(strangers, failure)
		} else {
			others = append(others, failure)
		}
	}
	return append(strangers, others...), nil
}

func isStranger(hosts []*host, failure *control.HostError) bool {
	for _, h := range hosts {
		if h.refusedBy(failure) {
			return true
		}
	}
	return false
}
