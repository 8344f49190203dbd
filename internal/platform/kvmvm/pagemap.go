//go:build linux && amd64

package kvmvm

import pages "github.com/maf-sandbox/maf-sandbox-go/internal/platform/pagemap"

// pagemap is an open /proc/self/pagemap.
type pagemap struct{ fd int }

// regions is the buffer for one scan.
type regions = pages.Regions

// scan fills out with runs of private pages in [start,end). It gives their
// number and where to go on.
func (p pagemap) scan(start, end uint64, out *regions) (int, uint64, error) {
	return pages.Scan(p.fd, start, end, out)
}

// entries calls found for every private page of [start,end), page by page.
func (p pagemap) entries(start, end uint64, found func(addr uint64) bool) error {
	return pages.Entries(p.fd, start, end, found)
}
