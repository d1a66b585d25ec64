package conformance

// Edited returns options whose run has the library's migrations, and the table, edited first.
func Edited(opts Options, edit func(sql string) string) *Options {
	opts.edit = edit
	return &opts
}
