// Package pagemap finds the pages of a private mapping that a process has made
// its own, by the kernel's page map of that process
// (Documentation/admin-guide/mm/pagemap.rst).
package pagemap
