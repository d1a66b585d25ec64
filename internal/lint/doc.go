// Package lint holds rules of the repository that no general linter knows, as tests: which package
// may import which, that SQL and Go agree on names, and that the README's code is compiled.
package lint
