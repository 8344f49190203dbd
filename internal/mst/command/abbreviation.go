package command

import (
	"context"
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
	// abbreviates: it stands for the one id that begins with it.
	abbreviates use = iota
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
// it is of none or must not stand for it, which is said. Precondition: found
// says that typed is nobody's whole id, as far as is known.
func (f *Factory) expand(ctx context.Context, hosts *fleet.Fleet, found fleet.Found, typed string, use use) (string, error) {
	if typed == "" {
		return "", nil
	}
	records, err := waiting(f, sayAsking, func() ([]control.Record, error) { return hosts.Beginning(ctx, found, typed) })
	if err != nil {
		return "", err
	}
	var ids []string
	names := make(map[string]string)
	for i := range records {
		id := records[i].InstanceID
		if _, there := names[id]; !there && id != typed {
			ids = append(ids, id)
			names[id] = view.Name(records[i].LogicalName())
		}
	}
	switch {
	case len(ids) == 0:
		return "", nil
	case use == wholeOnly:
		f.warnf("nobody is asked, so the id has to be whole; %s is only the beginning of one", view.Name(typed))
		return "", nil
	case utf8.RuneCountInString(typed) < minAbbreviation:
		f.warnf("%s is too short for the beginning of an id; give %d characters of it or more", view.Name(typed), minAbbreviation)
		return "", nil
	case len(ids) == 1:
		return ids[0], nil
	}
	slices.Sort(ids)
	ambiguous := &ambiguousError{typed: typed}
	for _, id := range ids {
		ambiguous.candidates = append(ambiguous.candidates, []string{"", view.Name(id), names[id]})
	}
	return "", ambiguous
}
