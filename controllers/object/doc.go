// SPDX-License-Identifier: Apache-2.0

// Package object is what all controllers do alike with their objects: read one,
// write its status once and only when it changed, turn an error into the
// condition that names cause and remedy, send an event when Ready changes, write
// children by server-side apply, and carry a deletion into the store.
//
// There are no finalizers: a namespace always deletes. What a controller sees
// deleted it removes from the store; what is deleted while none looks is removed
// by the sweep at the start of the manager.
package object
