package microvm

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// fewPackages are so few that their order does not matter: the index of the image
// need not be read for it.
const fewPackages = 16

func (thisSystem) facts(c Config, name, id string) (sandbox.Facts, error) {
	store, err := image.OpenStore(filepath.Join(c.CacheDir, "images"))
	if err != nil {
		return sandbox.Facts{}, unavailable("no image store", err)
	}
	var file string
	if name == "" && id == "" {
		file, err = store.Current()
	} else {
		file, err = resolve(store, name, id)
	}
	var refusal *sandbox.RefusalError
	if errors.As(err, &refusal) {
		return sandbox.Facts{}, err
	}
	if err != nil {
		return sandbox.Facts{}, unavailable("no image", err)
	}
	im, err := image.Open(file)
	if err != nil {
		return sandbox.Facts{}, unavailable("no image", err)
	}
	facts := factsOf(im.ID(), im.Manifest(), im.Requested)
	return facts, im.Close()
}

// factsOf are the facts in a manifest. Their makers wrote what it says of packages:
// what is not plainly a name with a version is counted only.
func factsOf(id string, m *image.Manifest, requested func() map[string]bool) sandbox.Facts {
	facts := sandbox.Facts{ImageID: id, Python: m.Python}
	var seen map[string]bool
	for _, p := range m.Packages {
		named := sandbox.Package{Name: image.NormalName(p.Name), Version: p.Version}
		switch {
		case seen[named.Name]: // in another folder, behind the first
		case named.Validate() != nil || len(facts.Packages) == sandbox.MaxPackages:
			facts.MorePackages++
		default:
			if seen == nil {
				seen = make(map[string]bool, len(m.Packages))
			}
			seen[named.Name] = true
			facts.Packages = append(facts.Packages, named)
		}
	}
	if len(facts.Packages) > fewPackages {
		askedFor := requested()
		var first, others []sandbox.Package
		for _, p := range facts.Packages {
			if askedFor[p.Name] {
				first = append(first, p)
			} else {
				others = append(others, p)
			}
		}
		facts.Packages = slices.Concat(first, others)
	}
	return facts
}
