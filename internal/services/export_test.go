package services

// MemoryPlace is where in-memory data is kept; "" if there is not enough memory.
func MemoryPlace() string {
	if room(memoryPlace) < enoughMemory {
		return ""
	}
	return memoryPlace
}
