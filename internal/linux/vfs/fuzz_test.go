//go:build linux

package vfs

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tight are limits that a sequence of operations reaches.
var tight = Limits{Bytes: 16 * chunkSize, Inodes: 20}

// FuzzOperations does a sequence of operations within small limits and checks
// that what is charged is what is there, and that nothing is left at the end.
func FuzzOperations(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Longer sequences find the same and take longer.
		src := &byteSource{b[:min(len(b), 1<<14)]}
		l := &layerTree{fs: New(testBase(), tight, tick())}
		l.top = &l.fs.work
		for n := 0; len(src.b) > 0; n++ {
			l.do(genOp(src))
			if n%16 == 0 {
				checkAccounts(t, l.fs, l.held())
			}
		}
		checkAccounts(t, l.fs, l.held())
		l.closeAll()
		checkAccounts(t, l.fs, nil)
		l.checkSaved(t)
		l.removeAll(t, &l.fs.work)
		l.removeAll(t, &l.fs.tmp)
		checkAccounts(t, l.fs, nil)
		if l.fs.bytes != 0 || l.fs.inodes != 0 {
			t.Errorf("%d bytes and %d inodes are charged for nothing", l.fs.bytes, l.fs.inodes)
		}
	})
}

// checkSaved checks that the tree comes back from a file as it was.
func (l *layerTree) checkSaved(t *testing.T) {
	t.Helper()
	again, err := Import(testBase(), tight, tick(), roundTrip(t, l.fs))
	if err != nil {
		t.Fatalf("import of an export: %v", err)
	}
	checkAccounts(t, again, nil)
	if again.bytes != l.fs.bytes || again.inodes != l.fs.inodes {
		t.Errorf("%d bytes and %d inodes became %d and %d", l.fs.bytes, l.fs.inodes, again.bytes, again.inodes)
	}
	var was, is []string
	l.dump(&l.fs.work, "", &was)
	(&layerTree{fs: again}).dump(&again.work, "", &is)
	if !slices.Equal(was, is) {
		t.Errorf("the tree changed (-was +is):\n%s", cmp.Diff(was, is))
	}
}

// roundTrip saves a tree and takes it through JSON.
func roundTrip(t testing.TB, fs *FS) []Saved {
	t.Helper()
	saved, err := fs.Export()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var out []Saved
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzImport loads foreign bytes as a saved layer. What is taken must be
// counted right, and be the same after another export and import.
func FuzzImport(f *testing.F) {
	const tops = `[{"Parent":-1,"Name":"dG1w","Kind":1,"Mode":1023},{"Parent":-1,"Name":"d29yaw==","Kind":1,"Mode":493}`
	for _, s := range []string{
		`[]`, `null`, tops + `]`,
		tops + `,{"Parent":0,"Name":"YQ==","Mode":420,"Size":9000,"Data":[{"Offset":8000,"Bytes":"eHl6"}]}]`,
		tops + `,{"Parent":1,"Name":"ZA==","Kind":1,"Mode":493},{"Parent":2,"Name":"bA==","Kind":2,"Target":"Li4veA=="}]`,
		tops + `,{"Parent":0,"Name":"YQ=="},{"Parent":1,"Name":"Yg==","Link":2}]`,
		tops + `,{"Parent":0,"Name":"Li4="}]`, tops + `,{"Parent":7,"Name":"YQ=="}]`, tops + `,{"Parent":0,"Name":"YQ==","Kind":3}]`,
		`[{"Parent":-1,"Name":"ZGV2","Kind":1}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var saved []Saved
		if json.Unmarshal(b, &saved) != nil {
			return
		}
		fs, err := Import(testBase(), tight, tick(), saved)
		if err != nil {
			if !errors.Is(err, ErrSaved) {
				t.Errorf("import: %v", err)
			}
			return
		}
		checkAccounts(t, fs, nil)
		first := roundTrip(t, fs)
		again, err := Import(testBase(), tight, tick(), first)
		if err != nil {
			t.Fatalf("import of an export: %v", err)
		}
		checkAccounts(t, again, nil)
		if diff := cmp.Diff(first, roundTrip(t, again)); diff != "" {
			t.Errorf("an export changed (-first +second):\n%s", diff)
		}
	})
}
