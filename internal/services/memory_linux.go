package services

import "syscall"

// room returns how many bytes a file system has left; 0 where that cannot be told.
func room(path string) uint64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // a size is not negative
}
