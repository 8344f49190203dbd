package pagemap

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Bits of an entry of /proc/pid/pagemap.
const (
	present = 1 << 63
	swapped = 1 << 62
	file    = 1 << 61
)

// pageSize is that of x86-64 and of most others; the page map has one entry of
// entrySize bytes for each.
const (
	pageSize  = 4096
	entrySize = 8
)

// Entries calls found for every private page of [start,end), which are page
// aligned, by reading one entry for each page: for kernels before 6.7. It stops
// when found says false.
func Entries(fd int, start, end uint64, found func(addr uint64) bool) error {
	buf := make([]byte, 64<<10)
	for at := start; at < end; {
		want := min(uint64(len(buf)), (end-at)/pageSize*entrySize)
		n, err := unix.Pread(fd, buf[:want], int64(at/pageSize*entrySize))
		if err != nil {
			return err
		}
		if n == 0 || n%entrySize != 0 {
			return unix.EIO
		}
		for i := 0; i < n; i += entrySize {
			e := binary.LittleEndian.Uint64(buf[i:])
			if e&(present|swapped) != 0 && e&file == 0 && !found(at) {
				return nil
			}
			at += pageSize
		}
	}
	return nil
}
