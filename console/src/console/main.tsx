import { render } from 'preact';
import '../styles/index.css';
import { applyPrefs } from '../lib/prefs';
import { Desk } from './desk';

applyPrefs();
const root = document.getElementById('app');
if (root) render(<Desk />, root);
