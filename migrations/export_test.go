package migrations

// Made is made, for tests.
var Made = made
