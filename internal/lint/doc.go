// Package lint holds, as tests, rules of the repository that no general linter knows: which package may import which,
// what the public packages export, how many requirements the library brings, that SQL and Go agree on names, and that
// the README's code compiles.
package lint
