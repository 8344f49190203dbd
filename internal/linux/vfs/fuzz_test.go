//go:build linux

package vfs

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
)

// FuzzOperations does a sequence of operations within small limits and checks
// that what is charged is what is there, and that nothing is left at the end.
func FuzzOperations(f *testing.F) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Longer sequences find the same and take longer.
		src := &byteSource{b[:min(len(b), 1<<14)]}
		l := &layerTree{fs: New(testBase(), Limits{Bytes: 16 * pageSize, Inodes: 20}, ticks())}
		l.top = &l.fs.work
		for n := 0; len(src.b) > 0; n++ {
			l.do(genOp(src))
			if n%16 == 0 {
				l.fs.check(t, l.held()...)
			}
		}
		l.fs.check(t, l.held()...)
		l.closeAll()
		l.fs.check(t)
		l.checkSaved(t)
		l.removeAll(t, &l.fs.work)
		l.removeAll(t, &l.fs.tmp)
		l.fs.check(t)
		if l.fs.bytes != 0 || l.fs.inodes != 0 {
			t.Errorf("%d bytes and %d inodes are charged for nothing", l.fs.bytes, l.fs.inodes)
		}
	})
}

// checkSaved saves and loads the tree, if it can be saved.
func (l *layerTree) checkSaved(t *testing.T) {
	t.Helper()
	saved, err := l.fs.Export()
	if err != nil {
		if !errors.Is(err, ErrSaved) {
			t.Errorf("export: %v", err)
		}
		return
	}
	again, err := Import(testBase(), Limits{Bytes: maxSaved, Inodes: 20}, ticks(), saved)
	if err != nil {
		t.Errorf("import of an export: %v", err)
		return
	}
	var was, is []string
	l.dump(&l.fs.work, "", &was)
	(&layerTree{fs: again}).dump(&again.work, "", &is)
	if len(was) != len(is) {
		t.Fatalf("%d entries became %d", len(was), len(is))
	}
	for i := range was {
		if was[i] != is[i] {
			t.Errorf("%.100q became %.100q", was[i], is[i])
		}
	}
}

// FuzzImport loads foreign bytes as a saved layer. What is taken must be
// counted right and come out of an export as it went in.
func FuzzImport(f *testing.F) {
	for _, s := range []string{
		`[]`, `null`,
		`[{"Path":"/tmp/a","Kind":1,"Mode":420,"Data":"eHl6"}]`,
		`[{"Path":"/work/d","Kind":2,"Mode":493},{"Path":"/work/d/l","Kind":3,"Mode":511,"Target":"../x"}]`,
		`[{"Path":"/tmp/../usr","Kind":2}]`, `[{"Path":"/tmp/a","Kind":3,"Mode":511,"Target":"/work"},{"Path":"/tmp/a/b","Kind":1}]`,
		`[{"Path":"/tmp/a","Kind":1},{"Path":"/tmp/a","Kind":1}]`, `[{"Path":"/dev/null","Kind":4}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var saved []Saved
		if json.Unmarshal(b, &saved) != nil {
			return
		}
		fs, err := Import(testBase(), Limits{Bytes: 1 << 20, Inodes: 100}, ticks(), saved)
		if err != nil {
			if !errors.Is(err, ErrSaved) {
				t.Errorf("import: %v", err)
			}
			return
		}
		fs.check(t)
		out, err := fs.Export()
		if err != nil {
			t.Fatalf("export of an import: %v", err)
		}
		if len(out) != len(saved) {
			t.Errorf("%d entries became %d", len(saved), len(out))
		}
		again, err := Import(testBase(), Limits{Bytes: 1 << 20, Inodes: 100}, ticks(), out)
		if err != nil {
			t.Fatalf("import of an export: %v", err)
		}
		again.check(t)
	})
}
