package platform

import "sort"

// Rights are the spans of a machine, sorted by address. They answer whether a
// whole range is user memory with a right.
type Rights []Span

// Allow reports whether the guest has need on all of [addr, addr+n), which must
// end at or before size; n is not 0.
func (r Rights) Allow(addr, n, size uint64, need Prot) bool {
	end := addr + n
	if end < addr || end > size || addr < UserLo {
		return false
	}
	// Nearly every access is to the last two spans or the stack, so look from
	// the end before searching.
	i := len(r) - 1
	if i < 0 || addr < r[i].Lo {
		i = sort.Search(len(r), func(i int) bool { return r[i].Hi > addr })
	}
	for ; i < len(r); i++ {
		s := r[i]
		if addr < s.Lo || s.Prot&need != need {
			return false
		}
		if end <= s.Hi {
			return true
		}
		addr = s.Hi
	}
	return false
}
