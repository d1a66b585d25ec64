// Package web shows a board as one read-only page, and as metrics for Prometheus.
//
// It answers from memory: whatever browsers ask for, the servers are looked at by one board, and each page is rendered
// once per look and order. It takes no input but the order of the rows. The page loads nothing from anywhere else.
package web
