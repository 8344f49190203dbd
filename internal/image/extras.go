//go:build unix

package image

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	zoneFolder   = "/usr/share/zoneinfo"
	localeFolder = "/usr/lib/locale"
	// zoneMagic begins a compiled time zone (RFC 9636, section 3.1).
	zoneMagic = "TZif"
	// maxMetadata bounds what is read of a package's METADATA, in bytes.
	maxMetadata = 64 << 10
)

// addZones plans the compiled time zones, following links within the folder.
// The names of the host's own zone and the second and third set of the same
// zones are left out.
func (p *plan) addZones() error {
	root, err := filepath.EvalSymlinks(zoneFolder)
	if errors.Is(err, fs.ErrNotExist) {
		p.logf("not on this machine: %s; zoneinfo needs the package tzdata", zoneFolder)
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(host string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, host)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "posix" || rel == "right"):
			return filepath.SkipDir
		case d.IsDir(), rel == "localtime", rel == "posixrules":
			return nil
		}
		real, err := filepath.EvalSymlinks(host)
		if err != nil || !within(real, root) || !beginsWith(real, zoneMagic) {
			return nil
		}
		return p.add(&item{guest: path.Join(zoneFolder, rel), host: real})
	})
}

func beginsWith(name, start string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, len(start))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == start
}

// addLocale plans the C.UTF-8 locale, which newer C libraries have built in.
func (p *plan) addLocale() error {
	for _, name := range []string{"C.utf8", "C.UTF-8"} {
		root, err := filepath.EvalSymlinks(path.Join(localeFolder, name))
		if err != nil {
			continue
		}
		return p.walk(tree{root, path.Join(localeFolder, name)}, func(string, bool) bool { return false })
	}
	return nil
}

// packagesIn lists the distributions installed in a site-packages folder.
func packagesIn(dir string) ([]Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var packages []Package
	for _, e := range entries {
		name := e.Name()
		if skipPackages(name, e.IsDir()) || !hasSuffix(name, ".dist-info", ".egg-info") {
			continue
		}
		file := filepath.Join(dir, name)
		switch {
		case e.IsDir() && strings.HasSuffix(name, ".dist-info"):
			file = filepath.Join(file, "METADATA")
		case e.IsDir():
			file = filepath.Join(file, "PKG-INFO")
		}
		if p, ok := readMetadata(file); ok {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// readMetadata reads the fields of a core metadata file that name it.
func readMetadata(name string) (Package, bool) {
	f, err := os.Open(name)
	if err != nil {
		return Package{}, false
	}
	defer func() { _ = f.Close() }()
	var p Package
	for s := bufio.NewScanner(io.LimitReader(f, maxMetadata)); s.Scan() && s.Text() != ""; {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch value = strings.TrimSpace(value); key {
		case "Name":
			p.Name = value
		case "Version":
			p.Version = value
		}
	}
	return p, p.Name != "" && p.Version != ""
}

// pathFolders gives the guest folders that .pth files add to sys.path. Their
// other lines are programs; sandboxes start without them.
func (p *plan) pathFolders() []string {
	var folders []string
	for _, file := range p.pth {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			text := strings.TrimSpace(string(line))
			if text == "" || text[0] == '#' || strings.HasPrefix(text, "import ") || strings.HasPrefix(text, "import\t") {
				continue
			}
			if !filepath.IsAbs(text) {
				text = filepath.Join(filepath.Dir(file), text)
			}
			real, err := filepath.EvalSymlinks(text)
			if err != nil {
				continue
			}
			guest, ok := p.inside(real)
			if !ok {
				p.logf("left out: %s adds the folder %s, which is not in the environment", file, real)
			} else if !slices.Contains(folders, guest) {
				folders = append(folders, guest)
			}
		}
	}
	return folders
}
