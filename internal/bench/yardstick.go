package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
)

// maxYardstick bounds what a yardstick command may print, in bytes.
const maxYardstick = 1 << 20

// Rival is another product's numbers, keyed by benchmark ID.
type Rival struct {
	Name    string
	Medians map[string]float64 // milliseconds
}

// RunRival runs a command line that prints the yardstick's numbers as JSON:
// {"name": "...", "N1": {"p50_ms": 0.16}, ...}. The command line is the
// user's own and goes to the shell.
func RunRival(ctx context.Context, command string) (Rival, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	out := &limited{limit: maxYardstick}
	var errOut limited
	errOut.limit = 4096
	cmd.Stdout, cmd.Stderr = out, &errOut
	if err := cmd.Run(); err != nil {
		return Rival{}, fmt.Errorf("yardstick: %w: %s", err, lastLine(errOut.Bytes()))
	}
	r, err := DecodeRival(out.Bytes())
	if err != nil {
		return Rival{}, fmt.Errorf("yardstick: %w", err)
	}
	return r, nil
}

// DecodeRival reads what a yardstick command printed. Keys that are no
// benchmark's are left alone by Apply.
func DecodeRival(b []byte) (Rival, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return Rival{}, fmt.Errorf("not a JSON object: %w", err)
	}
	r := Rival{Medians: map[string]float64{}}
	if err := json.Unmarshal(raw["name"], &r.Name); err != nil || r.Name == "" {
		return Rival{}, fmt.Errorf("no name in it")
	}
	for id, text := range raw {
		if id == "name" {
			continue
		}
		var v struct {
			P50 *float64 `json:"p50_ms"`
		}
		if err := json.Unmarshal(text, &v); err != nil || v.P50 == nil || *v.P50 <= 0 || math.IsInf(*v.P50, 0) {
			return Rival{}, fmt.Errorf("%q has no p50_ms above zero", id)
		}
		r.Medians[id] = *v.P50
	}
	return r, nil
}

// Apply sets the yardstick of every result that the rival has a number for and
// that has none yet.
func (r Rival) Apply(results []Result) {
	for i := range results {
		x := &results[i]
		if p50, ok := r.Medians[x.ID]; ok && x.Unit == Milliseconds && x.Yardstick == nil {
			x.Compare(r.Name, p50)
		}
	}
}

// limited keeps the first limit bytes and drops the rest.
type limited struct {
	bytes.Buffer
	limit int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.limit - l.Len(); room > 0 {
		_, _ = l.Buffer.Write(p[:min(room, len(p))]) // never fails
	}
	return len(p), nil
}

func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
