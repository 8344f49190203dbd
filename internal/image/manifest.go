package image

import (
	"encoding/json"
)

// Manifest describes an image. Its JSON is what the image's ID is made of.
type Manifest struct {
	// Format is the version of the file format.
	Format int `json:"format"`
	// Python is the interpreter's version, such as "3.13.0".
	Python string `json:"python"`
	// Tag is the byte code tag, such as "cpython-313".
	Tag string `json:"tag"`
	// Libc names the C library, such as "glibc 2.36".
	Libc string `json:"libc"`
	// Executable is the interpreter's path in the guest.
	Executable string `json:"executable"`
	// Interp is the path of the ELF loader in the guest (PT_INTERP).
	Interp string `json:"interp"`
	// LibraryPath lists the guest folders for LD_LIBRARY_PATH.
	LibraryPath []string `json:"library_path"`
	// StdLib is the folder of the standard library in the guest.
	StdLib string `json:"stdlib"`
	// SitePackages lists the guest folders to put on sys.path.
	SitePackages []string `json:"site_packages"`
	// Packages lists the distributions in SitePackages, sorted by name.
	Packages []Package `json:"packages"`
	// Files counts the regular files.
	Files int `json:"files"`
	// Bytes is the size of all regular files together.
	Bytes int64 `json:"bytes"`
	// ObjectTable and Index locate the other two tables in the file.
	ObjectTable Section `json:"object_table"`
	Index       Section `json:"index"`
	// Objects are the ELF files of the image that can be loaded: the
	// interpreter, the ELF loader and every shared object, sorted by path.
	// They are in a table of their own, which opening an image reads too.
	Objects []Object `json:"-"`
}

// Package is an installed distribution.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Section is a range of the image file with its digest.
type Section struct {
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Object is what a program header says about a loadable ELF file.
type Object struct {
	// Path is the file's place in the guest.
	Path string
	// Position says that the file is linked to fixed addresses (ET_EXEC).
	Position bool
	// Low and High bound the virtual addresses of all segments, as linked.
	Low, High uint64
	// Align is the largest alignment of a segment, in bytes.
	Align uint64
	// Loads are the PT_LOAD segments by rising address.
	Loads []Load
}

// Load is one PT_LOAD segment. Flags are those of the ELF program header.
type Load struct {
	Off, Filesz, Vaddr, Memsz uint64
	Flags                     uint32
}

func decodeManifest(b []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, damaged("manifest: %v", err)
	}
	if m.Format != formatVersion {
		return nil, damaged("manifest: format %d, and this program reads format %d", m.Format, formatVersion)
	}
	paths := append([]string{m.Executable, m.Interp, m.StdLib}, m.LibraryPath...)
	for _, p := range append(paths, m.SitePackages...) {
		if !cleanPath(p) {
			return nil, damaged("manifest: bad path %q", p)
		}
	}
	if m.Python == "" || m.Tag == "" || m.Files < 0 || m.Bytes < 0 {
		return nil, damaged("manifest: incomplete")
	}
	return m, nil
}

// cleanPath reports whether p is an absolute path in its shortest spelling.
func cleanPath[T string | []byte](p T) bool {
	if len(p) == 0 || len(p) > maxPath || p[0] != '/' {
		return false
	}
	if len(p) == 1 {
		return true
	}
	start := 1 // of the part
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] == 0 {
			return false
		}
		if i < len(p) && p[i] != '/' {
			continue
		}
		if part := p[start:i]; len(part) == 0 || string(part) == "." || string(part) == ".." {
			return false
		}
		start = i + 1
	}
	return true
}
