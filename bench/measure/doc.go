// Package measure runs candidates for the same job against each other.
//
// Machines are noisy and drift, so what counts is the ratio of two candidates that ran side by side. Each round runs
// every candidate for a short slice of time, in an order that changes from round to round. A ratio is taken within a
// round, and medians are taken over rounds.
package measure
