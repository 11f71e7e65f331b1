// SPDX-License-Identifier: Apache-2.0

// Package cache is a cache with a limited size and age.
package cache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache holds values for a limited time. When it is full, it drops the least recently used value.
// It is safe for concurrent use. The caller reads missing values from the source again.
type Cache[K comparable, V any] struct {
	entries *lru.Cache[K, entry[V]]
	ttl     time.Duration
	now     func() time.Time
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns a cache of at most size values, at least 1, that expire after ttl. now is the clock;
// nil means time.Now. With a ttl of 0 values do not expire.
func New[K comparable, V any](size int, ttl time.Duration, now func() time.Time) *Cache[K, V] {
	if now == nil {
		now = time.Now
	}
	entries, err := lru.New[K, entry[V]](max(size, 1))
	if err != nil {
		panic("making a cache of at least one value: " + err.Error()) // fails only for sizes below 1
	}
	return &Cache[K, V]{entries: entries, ttl: ttl, now: now}
}

// Get returns a value that has not expired.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	e, ok := c.entries.Get(key)
	if !ok || c.ttl > 0 && !c.now().Before(e.until) {
		return value, false
	}
	return e.value, true
}

// Put stores a value.
func (c *Cache[K, V]) Put(key K, value V) { c.entries.Add(key, entry[V]{value, c.now().Add(c.ttl)}) }
