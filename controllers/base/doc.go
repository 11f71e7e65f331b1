// SPDX-License-Identifier: Apache-2.0

// Package base has the shared parts of all controllers: it reads an object, writes its status once
// and only if it changed, turns errors into conditions with cause and remedy, sends an event when Ready
// changes, writes children by server-side apply, and removes deleted objects from the store.
//
// There are no finalizers, so a namespace can always be deleted. A controller removes the row of an
// object when it sees the deletion. The sweep at the start of the manager removes the rows of objects
// that were deleted while no controller ran.
package base
