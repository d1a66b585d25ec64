// Package deploy has no code. Its files deploy fencepost's migrations: job.yaml and deployment.yaml on Kubernetes, and
// compose.yaml with Docker Compose. The tests read them with the types of Kubernetes and Compose, and run their
// commands on a database in the order in which they would run.
package deploy
