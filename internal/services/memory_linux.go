package services

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

// memoryLeft returns how many bytes of memory are available without swapping; 0 if unknown.
func memoryLeft() uint64 {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var kilobytes uint64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	return 0
}

// room returns how many more bytes a file system in memory can take; 0 if there is none.
func room(path string) uint64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0
	}
	return min(memoryLeft(), s.Bavail*uint64(s.Bsize)) //nolint:gosec // a size is not negative
}
