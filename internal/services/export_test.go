package services

// MemoryPlace is where data lies that is kept in memory, "" where there is not enough of it.
func MemoryPlace() string {
	if room(memoryPlace) < enoughMemory {
		return ""
	}
	return memoryPlace
}
