//go:build unix

package image

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// item is one file to be captured.
type item struct {
	guest string
	// host is the file to read; it has no links on the way.
	host string
	// target makes the item a link, relative to its folder.
	target     string
	elf        *program
	executable bool
}

// tree is a captured folder.
type tree struct{ host, guest string }

// link is a symbolic link within the captured folders, by guest paths.
type link struct{ guest, target string }

// plan collects what goes into an image.
type plan struct {
	items map[string]*item
	trees []tree
	links []link
	// pth lists .pth files, which are read but not captured.
	pth  []string
	logf func(string, ...any)
}

// add plans a file; the same file at the same place again is fine.
func (p *plan) add(it *item) error {
	if old := p.items[it.guest]; old != nil {
		if old.host != it.host {
			return fmt.Errorf("two files want the place %s: %s and %s", it.guest, old.host, it.host)
		}
		return nil
	}
	p.items[it.guest] = it
	return nil
}

// addFile plans the regular file at host. It finds out whether it is ELF.
func (p *plan) addFile(host, guest string) error {
	st, err := os.Stat(host)
	if err != nil {
		return err
	}
	it := &item{guest: guest, host: host, executable: st.Mode()&0o111 != 0}
	if !strings.HasSuffix(host, ".py") {
		// What is not sound ELF is data like any other.
		it.elf, _ = readELF(host)
	}
	return p.add(it)
}

// walk plans a folder's files. skip gets paths relative to the folder.
func (p *plan) walk(t tree, skip func(rel string, dir bool) bool) error {
	p.trees = append(p.trees, t)
	return filepath.WalkDir(t.host, func(host string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(t.host, host)
		if err != nil || rel == "." {
			return err
		}
		guest := path.Join(t.guest, rel)
		switch {
		case skip(rel, d.IsDir()):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case !utf8.ValidString(rel) || len(guest) > maxPath:
			p.logf("left out: %q has a name that is not UTF-8, or too long", host)
		case d.IsDir():
		case d.Type()&fs.ModeSymlink != 0:
			p.addLink(host, guest)
		case !d.Type().IsRegular():
			p.logf("left out: %s is neither file nor folder", host)
		case strings.HasSuffix(rel, ".pth"):
			p.pth = append(p.pth, host)
		default:
			return p.addFile(host, guest)
		}
		return nil
	})
}

// addLink remembers a link that stays within the captured folders. What is
// elsewhere on the host stays there.
func (p *plan) addLink(host, guest string) {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		p.logf("left out: %s is a link that leads nowhere", host)
		return
	}
	target, ok := p.inside(real)
	if !ok {
		p.logf("left out: %s is a link out of the captured folders, to %s", host, real)
		return
	}
	p.links = append(p.links, link{guest, target})
}

// inside maps a host path in a captured folder to its guest path.
func (p *plan) inside(host string) (string, bool) {
	for _, t := range p.trees {
		if within(host, t.host) {
			rel, err := filepath.Rel(t.host, host)
			return path.Join(t.guest, rel), err == nil
		}
	}
	return "", false
}

// resolveLinks plans the links whose targets are captured; those to files that
// were left out on purpose are left out too.
func (p *plan) resolveLinks() error {
	dirs := make(map[string]bool)
	for guest := range p.items {
		for d := path.Dir(guest); !dirs[d]; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for _, l := range p.links {
		to := p.items[l.target]
		if to == nil && !dirs[l.target] {
			continue
		}
		if to != nil && strings.HasSuffix(l.guest, ".py") {
			// Byte code is found by a source's own name: a copy gets some.
			if err := p.add(&item{guest: l.guest, host: to.host}); err != nil {
				return err
			}
			continue
		}
		rel, err := filepath.Rel(path.Dir(l.guest), l.target)
		if err != nil {
			return err
		}
		if err := p.add(&item{guest: l.guest, target: rel}); err != nil {
			return err
		}
	}
	return nil
}

// sorted gives the items by guest path.
func (p *plan) sorted() []*item {
	items := make([]*item, 0, len(p.items))
	for _, it := range p.items {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int { return strings.Compare(a.guest, b.guest) })
	return items
}
