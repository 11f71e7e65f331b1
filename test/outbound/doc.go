// SPDX-License-Identifier: Apache-2.0

// Package outbound tests what agents send, from the webhook that starts them to where it
// arrives: a gateway and a runner in one process, with scripted models.
package outbound
