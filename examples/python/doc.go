// Package python has a worker in Python, which takes part in the fence through SQL alone: `SELECT fencepost.draw(…)`
// for its claim, and `SELECT fencepost.enter(…)` at the top of its transactions.
package python
