package turns

// LeaveAsCalled gives up a place in the queue just after the turn has come.
func (t *Turns) LeaveAsCalled(first *Turn, key int64) {
	turn, called := t.stand(key)
	first.Done()
	_ = t.leave(turn, called)
}
