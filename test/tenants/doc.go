// SPDX-License-Identifier: Apache-2.0

// Package tenants tests the walls between projects: a real kube-apiserver, the
// store, the controllers with the rights of their role, the facade and both ports
// of the gateway, and two projects that know the IDs of each other.
package tenants
