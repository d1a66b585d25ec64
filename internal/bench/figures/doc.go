// Package figures holds what is measured: for each figure, the library's way to do a job and the way one
// would write it by hand, on the same servers, with the same clients and the same arguments.
package figures
