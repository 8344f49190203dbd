package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/fleet"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// minAbbreviation is how many characters of an instance id stand for it at the
// least, as git has it for commits.
const minAbbreviation = 4

// maxCandidates bounds the ids that an ambiguous beginning is answered with.
const maxCandidates = 10

// use says what the beginning of an instance id is good for, when no sandbox
// has it as its whole id.
type use int

const (
	// abbreviates: it stands for the one id that begins with it, at the hosts
	// that answer.
	abbreviates use = iota
	// agreed: it stands for the one id that begins with it, if all hosts answer:
	// an operator is asked whether the sandbox with that id is to go.
	agreed
	// wholeOnly: it stands for nothing. Where nobody is asked, an id that a
	// script kept must never come to mean another sandbox, whose id is longer.
	wholeOnly
)

// ambiguousError is the beginning of several instance ids.
type ambiguousError struct {
	typed string
	// candidates are ids and keys, safe to show.
	candidates [][]string
}

// Error says what to do.
func (e *ambiguousError) Error() string {
	return fmt.Sprintf("%s is the beginning of %d instance ids; give more of it", view.Name(e.typed), len(e.candidates))
}

// list shows the candidates, to stand below the error.
func (e *ambiguousError) list() string {
	shown := e.candidates[:min(len(e.candidates), maxCandidates)]
	text := view.Table(make([]string, 3), shown, false, nil)
	if more := len(e.candidates) - len(shown); more > 0 {
		text += fmt.Sprintf("  and %d more\n", more)
	}
	return text
}

// expand gives the whole instance id that typed is the beginning of, empty when
// it is of none or must not stand for it, which is said; unsure says that this
// is because hosts did not answer. Precondition: found says that typed is
// nobody's whole id, as far as is known.
func (f *Factory) expand(ctx context.Context, hosts *fleet.Fleet, found fleet.Found, typed string, use use) (whole string, unsure bool, err error) {
	if typed == "" {
		return "", false, nil
	}
	ids, names, silent, err := f.beginning(ctx, hosts, found, typed)
	switch {
	case err != nil:
		return "", false, err
	case use == wholeOnly && len(ids) == 0:
		return "", false, nil
	case use == wholeOnly:
		f.warnf("nobody is asked, so the id has to be whole; %s is only the beginning of one", view.Name(typed))
		return "", false, nil
	}
	f.warn(silent)
	switch {
	case len(ids) > 0 && utf8.RuneCountInString(typed) < minAbbreviation:
		f.warnf("%s is too short for the beginning of an id; give %d characters of it or more", view.Name(typed), minAbbreviation)
		return "", false, nil
	case len(ids) > 1:
		slices.Sort(ids)
		ambiguous := &ambiguousError{typed: typed}
		for _, id := range ids {
			ambiguous.candidates = append(ambiguous.candidates, []string{"", view.Name(id), names[id]})
		}
		return "", false, ambiguous
	case len(ids) == 0:
		return "", len(silent) > 0, nil
	case len(silent) > 0:
		f.warnf("%s is the beginning of %s, and maybe of others; give the whole id", view.Name(typed), view.Name(ids[0]))
		return "", true, nil
	case use == agreed && slices.ContainsFunc(found.Failures, mayHaveSandboxes):
		f.warn(found.Failures)
		return "", true, errAbsentHosts
	}
	return ids[0], false, nil
}

// beginning gives the ids that begin with typed and are longer, the names of
// their sandboxes, and the hosts that do not say which ids they have.
func (f *Factory) beginning(ctx context.Context, hosts *fleet.Fleet, found fleet.Found, typed string) (ids []string, names map[string]string, silent []*control.HostError, err error) {
	type answer struct {
		records  []control.Record
		failures []*control.HostError
	}
	got, err := waiting(f, sayAsking, func() (answer, error) {
		records, failures, err := hosts.Beginning(ctx, found, typed)
		return answer{records, failures}, err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	names = make(map[string]string)
	for i := range got.records {
		id := got.records[i].InstanceID
		if _, there := names[id]; !there && id != typed {
			ids = append(ids, id)
			names[id] = view.Name(got.records[i].LogicalName())
		}
	}
	return ids, names, slices.DeleteFunc(got.failures, func(failure *control.HostError) bool { return !mayHaveSandboxes(failure) }), nil
}

// mayHaveSandboxes says whether a host that failed may still have some: one that
// has ended has none.
func mayHaveSandboxes(failure *control.HostError) bool { return !errors.Is(failure, control.ErrGone) }

// sayIfAlsoBeginning warns an operator who typed what is the whole id of one
// sandbox and the beginning of others: any host can name a sandbox of its own
// like the beginning of another's id.
func (f *Factory) sayIfAlsoBeginning(ctx context.Context, hosts *fleet.Fleet, found fleet.Found) error {
	typed := found.Record.InstanceID
	ids, _, silent, err := f.beginning(ctx, hosts, found, typed)
	if err != nil {
		return err
	}
	f.warn(silent)
	if len(ids) == 0 {
		return nil
	}
	others := view.Name(slices.Min(ids))
	if len(ids) > 1 {
		others += fmt.Sprintf(" and %d more", len(ids)-1)
	}
	f.warnf("%s is the whole id of one sandbox, which you are asked about, and the beginning of %s", view.Name(typed), others)
	return nil
}
