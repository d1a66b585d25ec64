// Package pgbatch writes many rows under one claim, as a batch of arrays or as a load through COPY and a staging table,
// and reports the outcome of each row that was not written.
package pgbatch
