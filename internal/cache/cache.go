// SPDX-License-Identifier: Apache-2.0

// Package cache remembers what was just found out.
package cache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache holds values for a while. When it is full it forgets what was not asked for
// the longest. It is safe for concurrent use; the truth is asked again for what it
// does not hold.
type Cache[K comparable, V any] struct {
	entries *lru.Cache[K, entry[V]]
	ttl     time.Duration
	now     func() time.Time
}

type entry[V any] struct {
	value V
	until time.Time
}

// New makes a cache of at most size values, at least 1, that hold for ttl by a
// clock; nil means time.Now. With a ttl of 0 they hold until the cache is full.
func New[K comparable, V any](size int, ttl time.Duration, now func() time.Time) *Cache[K, V] {
	if now == nil {
		now = time.Now
	}
	entries, err := lru.New[K, entry[V]](max(size, 1))
	if err != nil {
		panic("making a cache of at least one value: " + err.Error()) // refuses sizes below 1 alone
	}
	return &Cache[K, V]{entries: entries, ttl: ttl, now: now}
}

// Get returns a value that still holds.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	e, ok := c.entries.Get(key)
	if !ok || c.ttl > 0 && !c.now().Before(e.until) {
		return value, false
	}
	return e.value, true
}

// Put remembers a value from now on.
func (c *Cache[K, V]) Put(key K, value V) { c.entries.Add(key, entry[V]{value, c.now().Add(c.ttl)}) }
